package rdma

import (
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"sync"

	"github.com/p2pfs/p2pfs/chunk"
)

// Request is the evidence an Authorizer judges: what the request says of
// itself, and what the connection proves.
type Request struct {
	Claim Claim
	TLS   *tls.ConnectionState // nil on a plain connection
}

// Authorizer decides who may talk to whom. Auth does it with a shared secret;
// one that trusts certificates instead fits the same hook. Implementations
// are safe for concurrent use.
type Authorizer interface {
	// Claim returns what a request to the peer carries.
	Claim(to chunk.Peer) Claim
	// Verify returns the node that sent a request meant for this one.
	// Errors: chunk.ErrWrongNode when it was meant for another cluster, node
	// or incarnation; chunk.ErrRefused when it proves nothing.
	Verify(r Request) (chunk.NodeID, error)
}

// maxCached bounds each of Auth's caches; a full one starts again.
const maxCached = 4096

// Auth is the Authorizer by shared secret: each request carries an
// HMAC-SHA256 over cluster, sender, receiver and the receiver's incarnation.
// Safe for concurrent use.
type Auth struct {
	creds       Credentials
	cluster     string // as headers carry them
	self        string
	incarnation string

	mu     sync.RWMutex
	claims map[chunk.NodeID]cachedClaim // by receiver
	tokens map[chunk.NodeID]string      // by sender; only of requests that were verified
}

type cachedClaim struct {
	incarnation uint64
	claim       Claim
}

var _ Authorizer = (*Auth)(nil)

// NewAuth returns the Authorizer of one node.
func NewAuth(c Credentials) (*Auth, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Auth{
		creds:       c,
		cluster:     c.Cluster.String(),
		self:        c.Self.String(),
		incarnation: FormatIncarnation(c.Incarnation),
		claims:      make(map[chunk.NodeID]cachedClaim),
		tokens:      make(map[chunk.NodeID]string),
	}, nil
}

// Claim implements Authorizer.
func (a *Auth) Claim(to chunk.Peer) Claim {
	a.mu.RLock()
	c, ok := a.claims[to.Node]
	a.mu.RUnlock()
	if ok && c.incarnation == to.Incarnation {
		return c.claim
	}
	c = cachedClaim{incarnation: to.Incarnation, claim: claimOf(a.creds, to)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.claims) >= maxCached {
		clear(a.claims)
	}
	a.claims[to.Node] = c
	return c.claim
}

// Verify implements Authorizer. It tells a stranger no more than which of
// its own statements is wrong.
func (a *Auth) Verify(r Request) (chunk.NodeID, error) {
	c := r.Claim
	switch {
	case c.Cluster == "" || c.Node == "" || c.From == "" || c.Token == "":
		return chunk.NodeID{}, fmt.Errorf("%w: it does not say who it is from and for", chunk.ErrRefused)
	case c.Proto != Proto:
		return chunk.NodeID{}, fmt.Errorf("%w: protocol %.16q, this node speaks %s", chunk.ErrRefused, c.Proto, Proto)
	case c.Cluster != a.cluster:
		return chunk.NodeID{}, fmt.Errorf("%w: meant for another cluster", chunk.ErrWrongNode)
	case c.Node != a.self:
		return chunk.NodeID{}, fmt.Errorf("%w: meant for another node", chunk.ErrWrongNode)
	case c.Incarnation != a.incarnation:
		return chunk.NodeID{}, fmt.Errorf("%w: meant for another incarnation", chunk.ErrWrongNode)
	}
	from, err := chunk.ParseNodeID(c.From)
	if err != nil {
		return chunk.NodeID{}, fmt.Errorf("%w: malformed sender", chunk.ErrRefused)
	}
	if !a.tokenIs(from, c.Token) {
		return chunk.NodeID{}, fmt.Errorf("%w: wrong token", chunk.ErrRefused)
	}
	return from, nil
}

// tokenIs compares in constant time. Only senders that proved themselves are
// remembered, so that strangers cannot fill the cache.
func (a *Auth) tokenIs(from chunk.NodeID, token string) bool {
	a.mu.RLock()
	want, known := a.tokens[from]
	a.mu.RUnlock()
	if !known {
		want = a.creds.token(from, a.creds.Self, a.creds.Incarnation)
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(token)) != 1 {
		return false
	}
	if !known {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.tokens) >= maxCached {
			clear(a.tokens)
		}
		a.tokens[from] = want
	}
	return true
}
