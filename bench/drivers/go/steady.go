package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	gapMin = 20 * time.Millisecond
	beat   = 200 * time.Millisecond
)

// A load at a steady rate until the process is ended, with the same lines as the Java driver's Steady prints.
type steady struct {
	stored, failed atomic.Int64
	leadership     atomic.Value
	lock           sync.Mutex
	last           time.Time
}

func runSteady(options options, target *target) {
	load := &steady{last: time.Now()}
	load.leadership.Store("- 0")
	step := time.Duration(float64(options.threads) / options.rate * float64(time.Second))
	for i := range options.threads {
		go load.send(target.sender(i), step)
	}
	go load.ask(target)
	for {
		time.Sleep(beat)
		load.lock.Lock()
		fmt.Println("beat", load.stored.Load(), load.failed.Load(), load.leadership.Load())
		load.lock.Unlock()
	}
}

// Calls at even times; those that fall due while one waits are left out.
func (s *steady) send(sender *sender, step time.Duration) {
	lastFault := ""
	for next := time.Now(); ; next = next.Add(step) {
		if now := time.Now(); next.Before(now) {
			next = now
		}
		time.Sleep(time.Until(next))
		if err := sender.call(); err != nil {
			s.failed.Add(1)
			if err.Error() != lastFault {
				lastFault = err.Error()
				fmt.Fprintln(os.Stderr, lastFault)
			}
			time.Sleep(afterFault)
			continue
		}
		s.noteStored()
	}
}

func (s *steady) noteStored() {
	s.lock.Lock()
	defer s.lock.Unlock()
	now := time.Now()
	if gap := now.Sub(s.last); gap >= gapMin {
		fmt.Printf("gap %.3f\n", float64(gap)/1e6)
	}
	s.last = now
	s.stored.Add(1)
}

func (s *steady) ask(target *target) {
	for {
		if told, err := target.leadership(); err == nil {
			s.leadership.Store(told)
		} else {
			s.leadership.Store("- 0")
		}
		time.Sleep(beat)
	}
}
