// The yardstick: a webhook that reads an AdmissionReview, looks at nothing but its uid, and says yes.
//
// Nothing in Go's standard library that has to know what is in a pod can do less, so what a review costs here is the
// price of TLS, HTTP and JSON alone: the whole review is decoded, the pod included, and looked at no further.
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"time"
)

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID       string         `json:"uid"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Operation string         `json:"operation"`
	DryRun    bool           `json:"dryRun"`
	Object    map[string]any `json:"object"`
	OldObject map[string]any `json:"oldObject"`
}

type response struct {
	UID     string `json:"uid"`
	Allowed bool   `json:"allowed"`
}

func answer(w http.ResponseWriter, r *http.Request) {
	var asked review
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 8<<20)).Decode(&asked); err != nil || asked.Request == nil {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	said := review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: &response{UID: asked.Request.UID, Allowed: true}}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(said)
}

func main() {
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	certificate := flag.String("certificate", "", "PEM certificate")
	key := flag.String("key", "", "PEM key")
	flag.Parse()
	http.HandleFunc("POST /", answer)
	http.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	server := &http.Server{
		Addr:              *address,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{NextProtos: []string{"http/1.1"}},
	}
	log.Fatal(server.ListenAndServeTLS(*certificate, *key))
}
