package verbs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
	"github.com/p2pfs/p2pfs/rdma/devices"
)

// maxAnswerHead bounds the head of an answer, in bytes.
const maxAnswerHead = 8 << 10

// askRails asks a peer for its ports.
func (c *Client) askRails(ctx context.Context, peer chunk.Peer, addr string) ([]devices.Rail, error) {
	var out []devices.Rail
	err := c.exchange(ctx, peer, addr, nil, func(_ net.Conn, _ *bufio.Reader, resp *http.Response) (keep bool, err error) {
		if resp.StatusCode != http.StatusOK {
			return false, statusError(resp)
		}
		out, err = readRails(resp.Body)
		return false, err
	})
	return out, err
}

// connect makes a link over a path.
func (c *Client) connect(ctx context.Context, peer chunk.Peer, addr string, path devices.Path) (*link, error) {
	l, err := c.join(ctx, peer, addr, path)
	if err == nil {
		l.start()
	}
	return l, err
}

// join agrees on a link that is not started yet.
func (c *Client) join(ctx context.Context, peer chunk.Peer, addr string, path devices.Path) (*link, error) {
	q, own, err := c.cfg.Host.newEnd(path.Local, path.LocalGID, c.cfg.Host.depth(path.Local))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLink, err)
	}
	head := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {upgradeName}, headerEnd: {own.String()},
		headerRail: {path.Remote.Name()}, headerGID: {strconv.Itoa(path.RemoteGID.Index)},
	}
	var l *link
	err = c.exchange(ctx, peer, addr, head, func(conn net.Conn, in *bufio.Reader, resp *http.Response) (keep bool, err error) {
		if resp.StatusCode != http.StatusSwitchingProtocols {
			return false, statusError(resp)
		}
		other, err := parseEndpoint(resp.Header.Get(headerEnd))
		if err != nil {
			return false, fmt.Errorf("%w: %w", chunk.ErrCorrupt, err)
		}
		if err := c.cfg.Host.join(q, path.Local, path.LocalGID, own, other); err != nil {
			return false, fmt.Errorf("%w: %w", errLink, err)
		}
		if err := c.enter(); err != nil {
			return false, err
		}
		l = newLink(c, peer, path, q, newControl(conn, in, c.cfg.StallTimeout, &c.sent))
		return true, nil
	})
	if err != nil {
		q.Close()
		if l != nil { // made, and then too late
			c.busy.Done()
		}
		return nil, err
	}
	c.cfg.Log.Debug("RDMA connection with a provider", "peer", rdma.DescribePeer(peer), "path", describePath(path))
	return l, nil
}

// exchange makes one request. take keeps the connection or not.
func (c *Client) exchange(ctx context.Context, peer chunk.Peer, addr string, head http.Header, take func(net.Conn, *bufio.Reader, *http.Response) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.DialTimeout+c.cfg.StallTimeout, fmt.Errorf("%w while connecting", chunk.ErrStalled))
	defer cancel()
	explain := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fmt.Errorf("%w: %w", errLink, err)
	}
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return explain(err)
	}
	keep := false
	defer func() {
		if !keep {
			_ = conn.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if head == nil {
		head = http.Header{"Connection": {"close"}}
	}
	claim := c.cfg.Auth.Claim(peer)
	claim.Each(head.Set)
	req := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: addr, Path: Path}, Host: addr,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: head,
	}
	if err := req.Write(conn); err != nil {
		return explain(err)
	}
	bound := &io.LimitedReader{R: conn, N: maxAnswerHead + maxRailsReply}
	in := bufio.NewReaderSize(bound, 4<<10)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return explain(err)
	}
	defer resp.Body.Close()
	if v := resp.Header.Get(rdma.HeaderProto); v != rdma.Proto {
		return fmt.Errorf("%w: status %d of something that does not speak protocol %s", chunk.ErrCorrupt, resp.StatusCode, rdma.Proto)
	}
	if resp.StatusCode < 300 && (resp.Header.Get(rdma.HeaderNode) != claim.Node || resp.Header.Get(rdma.HeaderIncarnation) != claim.Incarnation) {
		return fmt.Errorf("%w: %.32q answered", chunk.ErrWrongNode, resp.Header.Get(rdma.HeaderNode))
	}
	keep, err = take(conn, in, resp)
	if err == nil && keep {
		bound.N = math.MaxInt64
		if !stop() {
			keep = false
			return explain(context.Canceled)
		}
	}
	if err != nil {
		keep = false
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
	}
	return err
}

// dial connects within its own time. Its failure is not the end of ctx.
func (c *Client) dial(ctx context.Context, addr string) (net.Conn, error) {
	bound, cancel := context.WithTimeout(ctx, c.cfg.DialTimeout)
	defer cancel()
	conn, err := c.cfg.Dial(bound, "tcp", addr)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer in %v", c.cfg.DialTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return conn, nil
}

// statusError reads the text of an answer and maps its status.
func statusError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxText))
	var kind error
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = chunk.ErrRefused
	case http.StatusMisdirectedRequest:
		kind = chunk.ErrWrongNode
	default:
		kind = errLink
	}
	return fmt.Errorf("%w (status %d: %q)", kind, resp.StatusCode, text)
}
