package penstock

import (
	"context"
	"errors"
	"fmt"
	"time"

	contract "penstock.io/client/gen/penstock"
)

const runWait = 5 * time.Second

// Handler handles one delivery of a Run.
type Handler func(context.Context, *Delivery) (Verdict, error)

// Run pulls and handles until ctx ends, then gives back what no handler has seen, delivers the last acknowledgements
// and returns nil. An error from handle means VerdictRetry with that error as reason; the verdict beside it is then
// ignored. Leases are extended while messages wait or are handled; the rules are in clients/README.md.
//
// It returns an *Error when pulls are refused for good, when none has succeeded for Config.OutageMax, or when the last
// acknowledgements could not be delivered.
func (c *Consumer) Run(ctx context.Context, maxMessages int, handle Handler) error {
	run := &run{
		consumer: c, handle: handle, most: maxMessages, served: time.Now(),
		held: &heldLeases{lease: leaseMin, extendMax: c.config.ExtendMax},
	}
	err := run.loop(ctx)
	if err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.Background(), c.config.Deadline)
	defer cancel()
	return c.Flush(last)
}

// run is one Run. A second goroutine acknowledges and extends while a handler works.
type run struct {
	consumer *Consumer
	handle   Handler
	most     int
	held     *heldLeases // guarded by the consumer's mutex
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
		cancel()
		<-kept
		r.consumer.release(r.held)
	}()
	for ctx.Err() == nil {
		if err := r.pull(ctx); err != nil {
			return err
		}
		r.handleAll(ctx)
	}
	return nil
}

func (r *run) pull(ctx context.Context) error {
	c := r.consumer
	c.mu.Lock()
	count := r.held.wanted(r.most)
	c.mu.Unlock()
	answer, err := c.pull(ctx, count, runWait, nil)
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

func (r *run) handleAll(ctx context.Context) {
	c := r.consumer
	for ctx.Err() == nil {
		c.mu.Lock()
		d := r.held.begin(time.Now())
		c.mu.Unlock()
		if d == nil {
			return
		}
		began := time.Now()
		verdict, err := r.handle(ctx, d)
		ack := newAck(d, contract.Verdict(verdict), 0, "")
		if err != nil {
			verdict = VerdictRetry
			ack = newAck(d, contract.Verdict_RETRY, 0, err.Error())
		}
		took := time.Since(began)
		c.mu.Lock() // one step, so that no extension follows the acknowledgement
		r.held.end(took)
		c.queue(ack)
		c.mu.Unlock()
		if told := c.config.Metrics.Handled; told != nil {
			told(d, verdict, took)
		}
	}
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
