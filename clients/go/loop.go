package penstock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	contract "penstock.io/client/gen/penstock"
)

const runWait = 5 * time.Second

// Handler handles one delivery of a Run.
type Handler func(context.Context, *Delivery) (Verdict, error)

// Run pulls and handles until ctx ends, then gives back what no handler has seen, delivers the last acknowledgements
// and returns nil. Up to ConsumerConfig.Workers handlers work at a time, each in a goroutine. An error from handle, or a
// panic, means VerdictRetry with it as reason; the verdict beside an error is ignored. Leases are extended while messages
// wait or are handled; the rules are in clients/README.md.
//
// It returns an *Error when pulls are refused for good, when none has succeeded for Config.OutageMax, or when the last
// acknowledgements could not be delivered.
func (c *Consumer) Run(ctx context.Context, maxMessages int, handle Handler) error {
	run := &run{
		consumer: c, handle: handle, most: maxMessages, served: time.Now(),
		held: &heldLeases{
			lease: leaseMin, extendMax: c.config.ExtendMax, workers: c.config.Workers, busy: map[*heldDelivery]bool{},
		},
		ended: make(chan struct{}, 1),
	}
	err := run.loop(ctx)
	if err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.Background(), c.config.Deadline)
	defer cancel()
	return c.Flush(last)
}

// run is one Run. A second goroutine acknowledges and extends while handlers work.
type run struct {
	consumer *Consumer
	handle   Handler
	most     int
	held     *heldLeases   // guarded by the consumer's mutex
	ended    chan struct{} // has one element when handlers have ended since it was last empty
	working  sync.WaitGroup
	served   time.Time
	failures int
}

func (r *run) loop(ctx context.Context) error {
	keeping, cancel := context.WithCancel(context.Background())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		r.keep(keeping)
	}()
	defer func() {
		r.working.Wait() // their leases are extended meanwhile
		cancel()
		<-kept
		r.consumer.release(r.held)
	}()
	for ctx.Err() == nil {
		if !r.start(ctx) {
			select {
			case <-r.ended:
			case <-ctx.Done():
			}
		} else if err := r.pull(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) pull(ctx context.Context) error {
	c := r.consumer
	c.mu.Lock()
	count, wait := r.held.wanted(r.most), runWait
	if look := r.held.look(); len(r.held.busy) > 0 && look < wait {
		wait = look // beside handlers: the next pull has to carry their extensions
	}
	c.mu.Unlock()
	answer, err := c.pull(ctx, count, wait, r.held)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return r.failed(ctx, err)
	}
	if r.failures > 0 {
		c.config.Tell(fmt.Sprintf("pulling again after %.0f s", time.Since(r.served).Seconds()))
	}
	r.failures, r.served = 0, time.Now()
	lease := c.config.Invisible
	if lease == 0 {
		lease = time.Duration(answer.GetInvisibleMs()) * time.Millisecond
	}
	if lease == 0 {
		lease = leaseUnknown
	}
	c.mu.Lock()
	r.held.pulled(deliveries(answer.Deliveries), lease, time.Now())
	c.mu.Unlock()
	return nil
}

// failed tells of the outage and pauses. It returns the error if waiting cannot help, or was in vain for too long.
func (r *run) failed(ctx context.Context, err error) error {
	config := r.consumer.config
	var refusal *Error
	if !errors.As(err, &refusal) {
		return err
	}
	waits := refusal.Code == Code(contract.Code_UNKNOWN_TOPIC) || refusal.Code == Code(contract.Code_UNKNOWN_GROUP)
	if refusal.Code.Action() == Refused && !waits {
		return err
	}
	if config.OutageMax > 0 && time.Since(r.served) >= config.OutageMax {
		return err
	}
	r.failures++
	if r.failures == 1 {
		config.Tell("no pull succeeds, trying again: " + err.Error())
	}
	_ = sleepUntil(ctx, time.Now().Add(config.backoff(r.failures))) // the loop's condition sees the cancellation
	return nil
}

// start starts handlers for what waits, as far as workers are free; false: one has to end before the next pull.
func (r *run) start(ctx context.Context) bool {
	c := r.consumer
	c.mu.Lock()
	defer c.mu.Unlock()
	for ctx.Err() == nil {
		begun := r.held.begin(time.Now())
		if begun == nil {
			break
		}
		r.working.Add(1)
		go r.work(ctx, begun)
	}
	return r.held.hasRoom()
}

func (r *run) work(ctx context.Context, begun *heldDelivery) {
	defer r.working.Done()
	c, d := r.consumer, begun.delivery
	began := time.Now()
	verdict, err := r.judge(ctx, d)
	ack := newAck(d, contract.Verdict(verdict), 0, "")
	if err != nil {
		verdict = VerdictRetry
		ack = newAck(d, contract.Verdict_RETRY, 0, err.Error())
	}
	took := time.Since(began)
	if told := c.config.Metrics.Handled; told != nil {
		told(d, verdict, took)
	}
	c.mu.Lock() // one step, so that no extension follows the acknowledgement
	r.held.end(begun, took)
	c.queue(ack)
	c.mu.Unlock()
	select {
	case r.ended <- struct{}{}:
	default:
	}
}

// judge: a panic costs its message an attempt, not the process.
func (r *run) judge(ctx context.Context, d *Delivery) (verdict Verdict, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("panic: %v", fault)
		}
	}()
	verdict, err = r.handle(ctx, d)
	if err == nil && verdict != VerdictDone && verdict != VerdictRetry && verdict != VerdictReject {
		err = fmt.Errorf("the handler returned the verdict %d: use VerdictDone, VerdictRetry or VerdictReject", verdict)
	}
	return verdict, err
}

// keep delivers acknowledgements and extensions in time.
func (r *run) keep(ctx context.Context) {
	c := r.consumer
	for {
		c.mu.Lock()
		look := r.held.look()
		c.mu.Unlock()
		if sleepUntil(ctx, time.Now().Add(look)) != nil {
			return
		}
		now := time.Now()
		c.mu.Lock()
		due := len(c.acks) > 0 && now.Sub(c.acked) >= r.held.look() || r.held.due(now)
		c.mu.Unlock()
		if due {
			_, _ = c.pull(ctx, 0, 0, r.held) // after an error the next look or pull tries again
		}
	}
}
