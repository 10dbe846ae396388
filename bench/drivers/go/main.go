// Loads a NATS JetStream server as the Java driver loads the other systems: the same options, the same loops, the same lines on standard
// output ("opens", "closes", one line of JSON).
package main

import (
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	options := parseOptions()
	target, err := connect(options)
	if err != nil {
		log.Fatal(err)
	}
	if options.loop == "steady" {
		runSteady(options, target)
	}
	tallies := run(options, target)
	target.close()
	total := newTally()
	for _, tally := range tallies {
		total.addAll(tally)
	}
	fmt.Println(report(options, total))
}

func run(options options, target *target) []*tally {
	window := newWindow(options)
	var plan []time.Duration
	if options.rate > 0 {
		plan = window.plan(options.rate)
	}
	var next atomic.Int64
	var group sync.WaitGroup
	tallies := make([]*tally, options.threads)
	for i := range tallies {
		tallies[i] = newTally()
		sender := target.sender(i)
		group.Go(func() {
			switch {
			case options.rate > 0:
				openLoop(sender, window, plan, &next, tallies[i])
			case options.loop == "pipelined":
				pipelinedLoop(sender, window, tallies[i])
			default:
				syncLoop(sender, window.opens, window.closes, window, tallies[i])
			}
		})
	}
	say("opens", window, window.opens)
	say("closes", window, window.closes)
	group.Wait()
	return tallies
}

func say(word string, window window, at time.Duration) {
	window.sleepUntil(at)
	fmt.Println(word)
}
