package main

import (
	"encoding/json"
	"math"
	"os"
	"sort"
	"time"
)

// report counts, and prints once per second and at the end.
type report struct {
	started, printed time.Time
	sent             int
	callsMs          []float64
}

func newReport() *report {
	now := time.Now()
	return &report{started: now, printed: now}
}

func (r *report) called(messages int, took time.Duration, retried int64) {
	r.sent += messages
	r.callsMs = append(r.callsMs, float64(took.Microseconds())/1000)
	if time.Since(r.printed) >= time.Second {
		r.print(retried)
	}
}

func (r *report) print(retried int64) {
	r.printed = time.Now()
	ordered := append([]float64(nil), r.callsMs...)
	if len(ordered) == 0 {
		ordered = []float64{0}
	}
	sort.Float64s(ordered)
	json.NewEncoder(os.Stdout).Encode(struct {
		Sent    int     `json:"sent"`
		Retried int64   `json:"retried"`
		Seconds float64 `json:"seconds"`
		P50     float64 `json:"p50_ms"`
		P99     float64 `json:"p99_ms"`
	}{r.sent, retried, math.Round(r.printed.Sub(r.started).Seconds()*1000) / 1000,
		ordered[len(ordered)/2], ordered[len(ordered)*99/100]})
}
