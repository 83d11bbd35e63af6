// The load generator: sends one review over and over on a few TLS connections, checks every answer, prints JSON.
//
// It writes HTTP itself: net/http's client costs more than the server it would measure, and the two have one core
// each. Every request has a uid of its own, and every answer must be an AdmissionReview that allows that uid.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// The uid in the review's file, replaced by one of the same length in each request.
const placeholder = "00000000-0000-0000-0000-000000000000"

type options struct {
	address, path string
	review        []byte
	roots         *x509.CertPool
	connections   int
	warmup, run   time.Duration
	limit         int
}

type outcome struct {
	Answered  int     `json:"answered"` // the warm-up's too
	Measured  int     `json:"measured"`
	Patched   int     `json:"patched"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

type sender struct {
	options
	id        int
	answered  int
	patched   int
	durations []time.Duration
}

type answered struct {
	Kind     string `json:"kind"`
	Response struct {
		UID       string `json:"uid"`
		Allowed   bool   `json:"allowed"`
		PatchType string `json:"patchType"`
		Patch     []byte `json:"patch"`
	} `json:"response"`
}

func main() {
	chosen, err := parse()
	if err == nil {
		err = load(chosen)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func parse() (options, error) {
	var o options
	review := flag.String("review", "", "file with the AdmissionReview to send")
	roots := flag.String("roots", "", "PEM certificates to trust")
	flag.StringVar(&o.address, "address", "", "host:port")
	flag.StringVar(&o.path, "path", "/mutate", "where to POST")
	flag.IntVar(&o.connections, "connections", 8, "how many at once")
	flag.DurationVar(&o.warmup, "warmup", time.Second, "how long before measuring")
	flag.DurationVar(&o.run, "run", 5*time.Second, "how long to measure")
	flag.IntVar(&o.limit, "limit", 1_000_000, "most reviews per connection")
	flag.Parse()
	var err error
	if o.review, err = os.ReadFile(*review); err != nil {
		return o, err
	}
	if !bytes.Contains(o.review, []byte(placeholder)) {
		return o, fmt.Errorf("%s must have the uid %s", *review, placeholder)
	}
	pem, err := os.ReadFile(*roots)
	if err != nil {
		return o, err
	}
	o.roots = x509.NewCertPool()
	o.roots.AppendCertsFromPEM(pem)
	return o, nil
}

func load(o options) error {
	senders := make([]*sender, o.connections)
	failures := make([]error, o.connections)
	begin := time.Now().Add(o.warmup)
	end := begin.Add(o.run)
	var all sync.WaitGroup
	for i := range senders {
		senders[i] = &sender{options: o, id: i}
		all.Go(func() { failures[i] = senders[i].send(begin, end) })
	}
	all.Wait()
	for i, err := range failures {
		if err != nil {
			return fmt.Errorf("connection %d after %d reviews: %w", i, senders[i].answered, err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(sum(senders, min(o.run, time.Since(begin))))
}

func sum(senders []*sender, took time.Duration) outcome {
	var all []time.Duration
	o := outcome{Seconds: took.Seconds()}
	for _, s := range senders {
		all = append(all, s.durations...)
		o.Answered += s.answered
		o.Patched += s.patched
	}
	slices.Sort(all)
	o.Measured = len(all)
	o.PerSecond = float64(len(all)) / o.Seconds
	if len(all) > 0 {
		o.P50 = microseconds(all[len(all)/2])
		o.P99 = microseconds(all[len(all)*99/100])
	}
	return o
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// send asks and checks until the end, or until something is wrong.
func (s *sender) send(begin, end time.Time) error {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	connection, err := tls.DialWithDialer(dialer, "tcp", s.address, &tls.Config{RootCAs: s.roots})
	if err != nil {
		return err
	}
	defer connection.Close()
	connection.SetDeadline(end.Add(10 * time.Second))
	reader := bufio.NewReader(connection)
	request, places := s.request()
	for now := time.Now(); now.Before(end) && s.answered < s.limit; {
		uid := fmt.Sprintf("%08d-0000-4000-8000-%012d", s.id, s.answered)
		for _, at := range places {
			copy(request[at:], uid)
		}
		asked := time.Now()
		if _, err := connection.Write(request); err != nil {
			return err
		}
		if err := s.check(reader, uid); err != nil {
			return err
		}
		now = time.Now()
		s.answered++
		if asked.After(begin) && now.Before(end) {
			s.durations = append(s.durations, now.Sub(asked))
		}
	}
	return nil
}

// request is the whole HTTP request, and where in it the uid begins, as often as it is there.
func (s *sender) request() ([]byte, []int) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s?timeout=10s HTTP/1.1\r\nHost: %s\r\n", s.path, s.address)
	fmt.Fprintf(&b, "User-Agent: kube-apiserver-admission\r\nContent-Length: %d\r\n", len(s.review))
	b.WriteString("Accept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n")
	b.Write(s.review)
	var places []int
	for at := 0; ; at += len(placeholder) {
		next := bytes.Index(b.Bytes()[at:], []byte(placeholder))
		if next < 0 {
			return b.Bytes(), places
		}
		at += next
		places = append(places, at)
	}
}

func (s *sender) check(reader *bufio.Reader, uid string) error {
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var said answered
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d: %s", response.StatusCode, body)
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return err
	}
	if said.Kind != "AdmissionReview" || said.Response.UID != uid || !said.Response.Allowed {
		return fmt.Errorf("asked for %s, got %s", uid, body)
	}
	if said.Response.PatchType == "JSONPatch" && len(said.Response.Patch) > 2 {
		s.patched++
	}
	return nil
}
