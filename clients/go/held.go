package penstock

import "time"

const (
	leaseUnknown = 10 * time.Second // assumed when neither the consumer names a lease time nor the proxy tells the group's
	leaseMin     = time.Second      // what a lease has at least; assumed until the first answer
)

// heldDelivery is one delivery of a Run that is not yet acknowledged.
type heldDelivery struct {
	delivery *Delivery
	since    time.Time
	until    time.Time // the end of its lease
	lost     bool      // its extension was refused
}

// key tells whether there is one, too: messages without a key have no order.
func (h *heldDelivery) key() (topicKey, bool) {
	m := h.delivery.Message
	return topicKey{m.Topic, m.Key}, m.Key != ""
}

// heldLeases are the deliveries of a Run in the order of their pull, at most as many of them in handlers as there are
// workers, and of one key at most one. No I/O; its user guards it by a lock.
//
// A lease is extended once less than two thirds of it are left, and then all that have less than five sixths left go
// with it. With a look each sixth of a lease nothing has less than half of its lease left, unless the extension fails.
type heldLeases struct {
	lease     time.Duration
	extendMax time.Duration // a lease is not extended beyond this since its delivery: a handler that hangs loses it
	waiting   []*heldDelivery
	busy      map[*heldDelivery]bool
	workers   int
	handling  time.Duration // moving average; zero: nothing was handled yet
}

// look is the interval of looks at what has to be extended or acknowledged.
func (h *heldLeases) look() time.Duration { return h.lease / 6 }

// hasRoom: a worker is free and nothing waits for it.
func (h *heldLeases) hasRoom() bool {
	return len(h.busy) == 0 || len(h.busy) < h.workers && len(h.waiting) == 0
}

// wanted is the number of messages to ask for: what the free workers handle in a third of a lease, by the time so far.
func (h *heldLeases) wanted(most int) int {
	count := time.Duration(1)
	if h.handling > 0 {
		count = max(1, h.lease/3/h.handling)
	}
	count *= time.Duration(h.workers - len(h.busy))
	if count > time.Duration(most) {
		return most
	}
	if count < 1 {
		return 1
	}
	return int(count)
}

func (h *heldLeases) pulled(deliveries []*Delivery, lease time.Duration, now time.Time) {
	h.lease = lease
	for _, d := range deliveries {
		h.waiting = append(h.waiting, &heldDelivery{delivery: d, since: now, until: now.Add(lease)})
	}
}

// begin is the next delivery to handle; nil when there is none, no worker is free or those that wait have keys in
// handlers. Those whose lease has ended are dropped, as others may have them by now.
func (h *heldLeases) begin(now time.Time) *heldDelivery {
	if len(h.busy) >= h.workers {
		return nil
	}
	keys := map[topicKey]bool{}
	for each := range h.busy {
		if key, has := each.key(); has {
			keys[key] = true
		}
	}
	var begun *heldDelivery
	waiting := h.waiting[:0]
	for _, each := range h.waiting {
		key, has := each.key()
		switch {
		case each.lost || !each.until.After(now):
		case begun == nil && !(has && keys[key]):
			begun = each
		default:
			waiting = append(waiting, each)
		}
	}
	h.waiting = waiting
	if begun != nil {
		h.busy[begun] = true
	}
	return begun
}

// end: the handler has returned.
func (h *heldLeases) end(held *heldDelivery, took time.Duration) {
	delete(h.busy, held)
	if took <= 0 {
		took = 1
	}
	if h.handling == 0 {
		h.handling = took
	} else {
		h.handling = (3*h.handling + took + 3) / 4
	}
}

// due tells whether a lease has to be extended now.
func (h *heldLeases) due(now time.Time) bool { return len(h.older(h.lease*2/3, now)) > 0 }

func (h *heldLeases) toExtend(now time.Time) []*heldDelivery { return h.older(h.lease*5/6, now) }

// release lets go of all that no handler has seen.
func (h *heldLeases) release() []*Delivery {
	var released []*Delivery
	for _, each := range h.waiting {
		if !each.lost {
			released = append(released, each.delivery)
		}
	}
	h.waiting = nil
	return released
}

func (h *heldLeases) older(left time.Duration, now time.Time) []*heldDelivery {
	var found []*heldDelivery
	add := func(each *heldDelivery) {
		if !each.lost && each.until.Sub(now) < left && now.Sub(each.since) < h.extendMax {
			found = append(found, each)
		}
	}
	for _, each := range h.waiting {
		add(each)
	}
	for each := range h.busy {
		add(each)
	}
	return found
}
