package main

import (
	"math/rand"
	"time"
)

// Between the full load of the warm-up and an open loop's window: what was in flight ends, the queues run dry.
const settle = time.Second

// The measured time, planned before the threads start; all times count from `start`.
type window struct {
	start         time.Time
	fullLoadEnds  time.Duration // open loop: until then its threads send as fast as they can
	opens, closes time.Duration
}

func newWindow(options options) window {
	w := window{start: time.Now(), fullLoadEnds: seconds(options.warmupS)}
	w.opens = w.fullLoadEnds
	if options.rate > 0 {
		w.opens += settle
	}
	w.closes = w.opens + seconds(options.secondsS)
	return w
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

func (w window) now() time.Duration { return time.Since(w.start) }

func (w window) sleepUntil(at time.Duration) { time.Sleep(at - w.now()) }

func (w window) open(at time.Duration) bool { return at >= w.opens && at < w.closes }

// Poisson times over the window, always the same ones.
func (w window) plan(rate float64) []time.Duration {
	random := rand.New(rand.NewSource(1))
	var times []time.Duration
	for at := w.opens.Seconds(); at < w.closes.Seconds(); at += random.ExpFloat64() / rate {
		times = append(times, seconds(at))
	}
	return times
}
