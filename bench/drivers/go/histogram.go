package main

import (
	"math"
	"math/bits"
	"time"
)

const (
	stepBits = 7
	steps    = 1 << stepBits
)

// Counts of nanoseconds in buckets of at most 1/128 of their value, as in bench/_histogram.pyx.
type histogram struct {
	counts              [(64 - stepBits) * steps]int64
	total, sum, underMs int64
	max                 int64
}

func (h *histogram) add(value time.Duration) {
	ns := max(0, int64(value))
	h.counts[bucket(ns)]++
	h.total++
	h.sum += ns
	h.max = max(h.max, ns)
	if ns < int64(time.Millisecond) {
		h.underMs++
	}
}

func (h *histogram) addAll(other *histogram) {
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.total += other.total
	h.sum += other.sum
	h.underMs += other.underMs
	h.max = max(h.max, other.max)
}

// The upper end of the bucket that holds this share of all values, and never more than the maximum.
func (h *histogram) percentileMs(share float64) float64 {
	wanted := int64(math.Ceil(share * float64(h.total)))
	var seen int64
	for i, count := range h.counts {
		if seen += count; seen >= wanted && seen > 0 {
			return float64(min(upperEnd(i), h.max)) / 1e6
		}
	}
	return 0
}

func bucket(ns int64) int {
	if ns < steps {
		return int(ns)
	}
	shift := 63 - bits.LeadingZeros64(uint64(ns)) - stepBits
	return (shift+1)*steps + int(ns>>shift) - steps
}

func upperEnd(bucket int) int64 {
	if bucket < steps {
		return int64(bucket)
	}
	return int64(bucket%steps+steps+1)<<(bucket/steps-1) - 1
}
