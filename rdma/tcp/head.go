package tcp

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

const protoVersion = rdma.Proto

// Headers of an answer beside rdma's own, in net/http's canonical form.
const (
	headerBlock = "P2pfs-Block"
	headerSum   = "P2pfs-Sum"
	headerZero  = "P2pfs-Zero"
	headerRetry = "P2pfs-Retry" // of a 429: milliseconds, and "sending" if the block goes to another node
	// Of a request: anything, if somebody waits for the block.
	headerDemand = "P2pfs-Demand"
)

// head is what a 200 says of the block that follows.
type head struct {
	sum  uint32
	zero bool // no body follows
}

// write sets the headers of a 200.
func (h head) write(out http.Header, ref chunk.BlockRef) {
	out[headerBlock] = []string{blockName(ref)}
	if h.zero {
		out[headerZero] = []string{strconv.FormatInt(ref.Len, 10)}
		out["Content-Length"] = []string{"0"}
		return
	}
	out[headerSum] = []string{formatSum(h.sum)}
	out["Content-Length"] = []string{strconv.FormatInt(ref.Len, 10)}
}

// parseHead judges an answer before a byte of its body is read. claim is what
// the request carried. A 200 that says anything else than asked is
// chunk.ErrCorrupt, of another node chunk.ErrWrongNode.
func parseHead(resp *http.Response, claim rdma.Claim, ref chunk.BlockRef) (head, error) {
	if v := resp.Header.Get(rdma.HeaderProto); v != protoVersion {
		return head{}, fmt.Errorf("%w: status %d of something that does not speak protocol %s", chunk.ErrCorrupt, resp.StatusCode, protoVersion)
	}
	if resp.StatusCode != http.StatusOK {
		return head{}, statusError(resp)
	}
	if resp.Header.Get(rdma.HeaderNode) != claim.Node || resp.Header.Get(rdma.HeaderIncarnation) != claim.Incarnation {
		return head{}, fmt.Errorf("%w: %.32q answered", chunk.ErrWrongNode, resp.Header.Get(rdma.HeaderNode))
	}
	if got := resp.Header.Get(headerBlock); got != blockName(ref) {
		return head{}, fmt.Errorf("%w: it answered with block %.48q", chunk.ErrCorrupt, got)
	}
	if zero := resp.Header.Get(headerZero); zero != "" {
		if zero != strconv.FormatInt(ref.Len, 10) || resp.ContentLength != 0 {
			return head{}, fmt.Errorf("%w: %.24q zeros and a body of %d bytes for a block of %d", chunk.ErrCorrupt, zero, resp.ContentLength, ref.Len)
		}
		return head{zero: true}, nil
	}
	if resp.ContentLength != ref.Len {
		return head{}, fmt.Errorf("%w: body of %d bytes for a block of %d", chunk.ErrCorrupt, resp.ContentLength, ref.Len)
	}
	sum, err := parseSum(resp.Header.Get(headerSum))
	if err != nil {
		return head{}, fmt.Errorf("%w: %w", chunk.ErrCorrupt, err)
	}
	return head{sum: sum}, nil
}

// maxText bounds the text of an answer that is not a block.
const maxText = 256

// statusError reads the text of an answer and maps its status.
func statusError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxText))
	var kind error
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return parseBusy(resp.Header.Get(headerRetry))
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = chunk.ErrRefused
	case http.StatusNotFound:
		kind = chunk.ErrNotHeld
	case http.StatusConflict:
		kind = chunk.ErrDamaged
	case http.StatusGone:
		kind = chunk.ErrSourceChanged
	case http.StatusMisdirectedRequest:
		kind = chunk.ErrWrongNode
	default:
		return fmt.Errorf("status %d: %q", resp.StatusCode, text)
	}
	return fmt.Errorf("%w (status %d: %q)", kind, resp.StatusCode, text)
}

// busySending marks a 429 for a block that goes to another node.
const busySending = " sending"

func busyHead(out http.Header, b *chunk.Busy) {
	v := strconv.FormatInt(b.Retry.Milliseconds(), 10)
	if b.Sending {
		v += busySending
	}
	out[headerRetry] = []string{v}
}

// longestRetry bounds what a peer can say of when to ask it again.
const longestRetry = 10 * time.Second

func parseBusy(v string) error {
	ms, sending := strings.CutSuffix(v, busySending)
	n, err := strconv.ParseUint(ms, 10, 31)
	if err != nil {
		return fmt.Errorf("%w: %.24q says when to ask a busy node again", chunk.ErrCorrupt, v)
	}
	return &chunk.Busy{Retry: min(time.Duration(n)*time.Millisecond, longestRetry), Sending: sending}
}

func blockName(ref chunk.BlockRef) string {
	return ref.Object.String() + "/" + strconv.Itoa(ref.Index)
}

func formatSum(sum uint32) string { return fmt.Sprintf("%08x", sum) }

func parseSum(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 16, 32)
	if err != nil || formatSum(uint32(n)) != s {
		return 0, fmt.Errorf("%.16q is not a checksum", s)
	}
	return uint32(n), nil
}
