package main

import (
	"encoding/json"
	"log"
	"sync"
	"time"
)

// Counts of one thread in the window; merged when all have ended.
type tally struct {
	latency, lag  histogram // lag: open loop, how late a call began though its thread was free
	lock          sync.Mutex
	errors        map[string]int64
	calls, unsent int64
}

func newTally() *tally { return &tally{errors: map[string]int64{}} }

func (t *tally) stored(latency time.Duration) {
	t.calls++
	t.latency.add(latency)
}

// Also called from the goroutine that receives a pipeline's answers.
func (t *tally) failed(err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.errors[err.Error()]++
}

func (t *tally) addAll(other *tally) {
	t.latency.addAll(&other.latency)
	t.lag.addAll(&other.lag)
	t.calls += other.calls
	t.unsent += other.unsent
	for text, count := range other.errors {
		t.errors[text] += count
	}
}

// The line of JSON; the same names as the Java driver's.
func report(options options, tally *tally) string {
	line, err := json.Marshal(map[string]any{
		"calls": tally.calls, "messages": tally.calls, "window_s": options.secondsS, "latency": summary(&tally.latency),
		"start_lag": summary(&tally.lag), "unsent": tally.unsent, "errors": tally.errors,
	})
	if err != nil {
		log.Fatal(err)
	}
	return string(line)
}

func summary(of *histogram) map[string]any {
	total := float64(max(1, of.total))
	return map[string]any{
		"count": of.total, "mean_ms": float64(of.sum) / total / 1e6, "p50": of.percentileMs(0.5), "p90": of.percentileMs(0.9),
		"p99": of.percentileMs(0.99), "p99_9": of.percentileMs(0.999), "p99_99": of.percentileMs(0.9999),
		"max_ms": float64(of.max) / 1e6, "share_under_1_ms": float64(of.underMs) / total,
	}
}
