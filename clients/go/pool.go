package penstock

import (
	"context"
	"errors"
	"math/rand"
	"sync"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
)

// Until a connection has shown a valid credential, proxies take frames of 64 KiB at most. A larger first call is
// preceded by a small one.
const untrustedCallBytesMax = 48 << 10

// A proxy answers by the call's timeout, which may be the deadline; its answer needs a moment to come back.
const answerMargin = 500 * time.Millisecond

type endpoint struct {
	address    string
	idle       []*conn
	isForeign  bool // its last answer was none of this contract
	failures   int
	asideUntil time.Time
}

// pool keeps connections to several proxies. One that fails is set aside for a growing pause; the others are used in
// turn.
type pool struct {
	config Config
	method string

	mu        sync.Mutex
	endpoints []*endpoint
	turn      int
	closed    bool
}

func newPool(c Config, method string) (*pool, error) {
	if len(c.Endpoints) == 0 {
		return nil, errors.New("penstock: no endpoints: give at least one host:port")
	}
	p := &pool{config: c, method: method, turn: rand.Intn(len(c.Endpoints))}
	for _, address := range c.Endpoints {
		p.endpoints = append(p.endpoints, &endpoint{address: address})
	}
	return p, nil
}

// usableAt is when the first proxy may be tried again; in the past when one is now.
func (p *pool) usableAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.endpoints[0].asideUntil
	for _, e := range p.endpoints[1:] {
		if e.asideUntil.Before(first) {
			first = e.asideUntil
		}
	}
	return first
}

// request is one attempt: what to call, about how many bytes it takes, and an empty call with the same credential that
// goes ahead when that is too much for a new connection. A connection is made by the deadline, and the answer is here
// answerMargin later.
type request struct {
	call, hello func(thrift.TClient) error
	size        int
	timeout     time.Duration // for an answer
	deadline    time.Time
	stay        *endpoint // the proxy to use unless it is set aside; nil: the next one
}

// left is the time for an answer from now on.
func (r request) left() time.Duration {
	return min(r.timeout, time.Until(r.deadline.Add(answerMargin)))
}

// do makes one attempt at the next usable proxy. Errors are *callFailed (the proxy has been set aside), *Error (that, and
// all endpoints have answered last what is none of this contract), ErrClosed, or the context's.
func (p *pool) do(ctx context.Context, r request) (at *endpoint, err error) {
	e, c, err := p.take(r.stay)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if told := p.config.Metrics.Call; told != nil {
		defer func() { told(p.method, e.address, time.Since(began), err) }()
	}
	sent := false
	if c == nil {
		deadline := r.deadline
		if asked, ok := ctx.Deadline(); ok && asked.Before(deadline) {
			deadline = asked
		}
		c, err = dial(e.address, p.config, deadline)
	}
	if err == nil && r.size > untrustedCallBytesMax && !c.trusted {
		err = c.call(ctx, r.left(), r.hello)
	}
	if err == nil {
		sent = true
		err = c.call(ctx, r.left(), r.call)
	}
	if err == nil {
		p.giveBack(e, c)
		return e, nil
	}
	if c != nil {
		c.close()
	}
	if ctx.Err() == nil {
		p.setAside(e)
	}
	var refused thrift.TApplicationException
	if errors.As(err, &refused) {
		kind := refused.TypeId() // these two answer a call of another service, and one that is refused unread
		sent = sent && kind != thrift.UNKNOWN_METHOD && kind != thrift.PROTOCOL_ERROR
		if refused.TypeId() != thrift.INTERNAL_ERROR && p.allForeign(e) {
			return nil, &Error{Code: Unimplemented, Reason: e.address + ": " + refused.Error(), sent: sent}
		}
	}
	return nil, &callFailed{cause: err, at: e.address, sent: sent}
}

// setAside prefers other proxies for a pause that grows with each failure in a row.
func (p *pool) setAside(e *endpoint) {
	p.mu.Lock()
	e.isForeign = false
	e.failures++
	e.asideUntil = time.Now().Add(p.config.backoff(e.failures))
	stale := e.idle
	e.idle = nil
	p.mu.Unlock()
	for _, c := range stale {
		c.close()
	}
}

// allForeign notes what a proxy is that was set aside. Where all are, none waits: the next call ends as soon.
func (p *pool) allForeign(e *endpoint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.isForeign = true
	for _, each := range p.endpoints {
		if !each.isForeign {
			return false
		}
	}
	for _, each := range p.endpoints {
		each.isForeign, each.failures, each.asideUntil = false, 0, time.Time{}
	}
	return true
}

// praise resets the failures of a proxy that answered.
func (p *pool) praise(e *endpoint) {
	p.mu.Lock()
	e.failures, e.asideUntil = 0, time.Time{}
	p.mu.Unlock()
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, e := range p.endpoints {
		for _, c := range e.idle {
			c.close()
		}
		e.idle = nil
	}
}

func (p *pool) take(stay *endpoint) (*endpoint, *conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	now := time.Now()
	p.turn++
	best := p.endpoints[p.turn%len(p.endpoints)]
	for step := 1; step < len(p.endpoints); step++ {
		other := p.endpoints[(p.turn+step)%len(p.endpoints)]
		if best.asideUntil.After(now) && other.asideUntil.Before(best.asideUntil) {
			best = other
		}
	}
	if stay != nil && !stay.asideUntil.After(now) {
		best = stay
	}
	for len(best.idle) > 0 {
		c := best.idle[len(best.idle)-1]
		best.idle = best.idle[:len(best.idle)-1]
		if now.Sub(c.usedAt) < p.config.IdleTime {
			return best, c, nil
		}
		c.close()
	}
	return best, nil, nil
}

func (p *pool) giveBack(e *endpoint, c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.isForeign = false
	if p.closed || len(e.idle) >= p.config.IdleConns {
		c.close()
		return
	}
	e.idle = append(e.idle, c)
}

// sleepUntil waits, or returns the context's error.
func sleepUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func min(a, b time.Duration) time.Duration {
	if a < b {
		return a
	}
	return b
}

func max(a, b time.Duration) time.Duration {
	if a > b {
		return a
	}
	return b
}

func latest(times ...time.Time) time.Time {
	last := times[0]
	for _, t := range times[1:] {
		if t.After(last) {
			last = t
		}
	}
	return last
}
