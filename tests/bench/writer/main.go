// The client of an API server: writes objects on a few TLS connections, checks every answer, prints JSON.
//
// With POST it creates so many objects, each with a name of its own. With PUT it replaces one object over and over, each
// time in the version that the last answer had. It writes HTTP itself: net/http's client would take the time of the API
// server it measures, as all of it shares a few cores.
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
	"sync/atomic"
	"time"
)

// What stands in the object's file where its name goes (POST), or its version (PUT).
const placeholder = "00000000-0000-0000-0000-000000000000"

type options struct {
	address, method, path, prefix string
	object                        []byte
	connections, count            int
	tls                           *tls.Config
}

type outcome struct {
	Written   int     `json:"written"`
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

type writer struct {
	options
	next      *atomic.Int64
	version   string
	durations []time.Duration
}

type written struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

func main() {
	chosen, err := parse()
	if err == nil {
		err = write(chosen)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		os.Exit(1)
	}
}

func parse() (options, error) {
	var o options
	object := flag.String("object", "", "file with the object to write")
	roots := flag.String("roots", "", "PEM certificates to trust")
	certificate := flag.String("certificate", "", "PEM certificate to show")
	key := flag.String("key", "", "PEM key of it")
	flag.StringVar(&o.address, "address", "", "host:port")
	flag.StringVar(&o.method, "method", "POST", "POST or PUT")
	flag.StringVar(&o.path, "path", "", "where to")
	flag.StringVar(&o.prefix, "prefix", "p", "what the names begin with; with PUT the first version")
	flag.IntVar(&o.connections, "connections", 1, "how many at once")
	flag.IntVar(&o.count, "count", 100, "how many objects in all")
	flag.Parse()
	var err error
	if o.object, err = os.ReadFile(*object); err != nil {
		return o, err
	}
	if !bytes.Contains(o.object, []byte(placeholder)) {
		return o, fmt.Errorf("%s must have %s", *object, placeholder)
	}
	pem, err := os.ReadFile(*roots)
	if err != nil {
		return o, err
	}
	shown, err := tls.LoadX509KeyPair(*certificate, *key)
	o.tls = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{shown}}
	o.tls.RootCAs.AppendCertsFromPEM(pem)
	return o, err
}

// write connects first, and measures from when all are connected to the last answer.
func write(o options) error {
	var next atomic.Int64
	var connected, all sync.WaitGroup
	begin := make(chan struct{})
	writers := make([]*writer, o.connections)
	failures := make([]error, o.connections)
	connected.Add(o.connections)
	for i := range writers {
		writers[i] = &writer{options: o, next: &next, version: o.prefix}
		all.Go(func() { failures[i] = writers[i].run(&connected, begin) })
	}
	connected.Wait()
	began := time.Now()
	close(begin)
	all.Wait()
	took := time.Since(began)
	for i, err := range failures {
		if err != nil {
			return fmt.Errorf("connection %d after %d objects: %w", i, len(writers[i].durations), err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(sum(writers, took))
}

func sum(writers []*writer, took time.Duration) outcome {
	var all []time.Duration
	for _, w := range writers {
		all = append(all, w.durations...)
	}
	slices.Sort(all)
	o := outcome{Written: len(all), Seconds: took.Seconds(), PerSecond: float64(len(all)) / took.Seconds()}
	if len(all) > 0 {
		o.P50 = microseconds(all[len(all)/2])
		o.P99 = microseconds(all[len(all)*99/100])
	}
	return o
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// run writes until enough is written by all together, or until something is wrong.
func (w *writer) run(connected *sync.WaitGroup, begin <-chan struct{}) error {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	connection, err := tls.DialWithDialer(dialer, "tcp", w.address, w.tls)
	connected.Done()
	if err != nil {
		return err
	}
	defer connection.Close()
	<-begin
	reader := bufio.NewReader(connection)
	for number := w.next.Add(1); number <= int64(w.count); number = w.next.Add(1) {
		connection.SetDeadline(time.Now().Add(40 * time.Second))
		request := w.request(number)
		asked := time.Now()
		if _, err := connection.Write(request); err != nil {
			return err
		}
		if err := w.check(reader); err != nil {
			return err
		}
		w.durations = append(w.durations, time.Since(asked))
	}
	return nil
}

func (w *writer) request(number int64) []byte {
	filled := w.version
	if w.method == http.MethodPost {
		filled = fmt.Sprintf("%s-%d", w.prefix, number)
	}
	object := bytes.ReplaceAll(w.object, []byte(placeholder), []byte(filled))
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", w.method, w.path, w.address, len(object))
	b.WriteString("Accept: application/json\r\nContent-Type: application/json\r\n\r\n")
	b.Write(object)
	return b.Bytes()
}

func (w *writer) check(reader *bufio.Reader) error {
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		return fmt.Errorf("HTTP %d: %s", response.StatusCode, body)
	}
	if w.method != http.MethodPut {
		return nil
	}
	var said written
	err = json.Unmarshal(body, &said)
	w.version = said.Metadata.ResourceVersion
	return err
}
