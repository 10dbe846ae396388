package penstock

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	contract "penstock.io/client/gen/penstock"
)

// mint makes the application's credential and keeps it for a while, as the proxies cache their verdict by its bytes.
type mint struct {
	app, keyID, secret string
	use                time.Duration

	mu     sync.Mutex
	minted *contract.Credential
}

func newMint(c Config) *mint {
	return &mint{app: c.App, keyID: c.KeyID, secret: c.Secret, use: c.CredentialUse}
}

func (m *mint) credential(now time.Time) *contract.Credential {
	nowMs := now.UnixMilli()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.minted == nil || nowMs < m.minted.IssuedAtMs || nowMs-m.minted.IssuedAtMs >= m.use.Milliseconds() {
		mac := hmac.New(sha256.New, []byte(m.secret))
		fmt.Fprintf(mac, "penstock/1\n%s\n%s\n%d", m.app, m.keyID, nowMs)
		m.minted = &contract.Credential{App: m.app, KeyID: m.keyID, IssuedAtMs: nowMs, Signature: mac.Sum(nil)}
	}
	return m.minted
}
