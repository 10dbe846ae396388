package main

import (
	"sync/atomic"
	"time"
)

const (
	afterFault = 10 * time.Millisecond // avoids flooding a server that refuses all
	overtime   = 10 * time.Second      // then the rest of an open loop's plan counts as unsent
)

// One call after the other until `until`; counted when it begins and ends between `from` and `until`.
func syncLoop(sender *sender, from, until time.Duration, window window, tally *tally) {
	for began := window.now(); began < until; began = window.now() {
		if err := sender.call(); err != nil {
			tally.failed(err)
			time.Sleep(afterFault)
			continue
		}
		if ended := window.now(); began >= from && ended < until {
			tally.stored(ended - began)
		}
	}
}

// As many in flight as the library lets; latency is from the hand-over to the answer, counted when the answer is in the window.
// The answers of one sender arrive in order, so one goroutine receives them all.
func pipelinedLoop(sender *sender, window window, tally *tally) {
	type handed struct {
		future future
		at     time.Duration
	}
	flying := make(chan handed, inFlightMax)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for one := range flying {
			if err := wait(one.future); err != nil {
				tally.failed(err)
			} else if ended := window.now(); window.open(ended) {
				tally.stored(ended - one.at)
			}
		}
	}()
	for began := window.now(); began < window.closes; began = window.now() {
		future, err := sender.start()
		if err != nil {
			tally.failed(err)
			time.Sleep(afterFault)
			continue
		}
		flying <- handed{future, began}
	}
	close(flying)
	<-heard
}

// Calls at planned times, taken by whichever thread is free. Latency counts from the planned time, so a stall is charged to every call
// that fell due in it. `next` is the number of the plan's next call, shared by all threads.
func openLoop(sender *sender, window window, plan []time.Duration, next *atomic.Int64, tally *tally) {
	never := window.closes + time.Hour
	syncLoop(sender, never, window.fullLoadEnds, window, tally)
	for number := next.Add(1) - 1; number < int64(len(plan)); number = next.Add(1) - 1 {
		planned := plan[number]
		free := window.now() < planned
		window.sleepUntil(planned)
		began := window.now()
		if began > window.closes+overtime {
			tally.unsent++
			continue
		}
		if free {
			tally.lag.add(began - planned)
		}
		if err := sender.call(); err != nil {
			tally.failed(err)
			continue
		}
		tally.stored(window.now() - planned)
	}
}
