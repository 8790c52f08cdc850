package tcp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/rdma"
)

var (
	testClaim = rdma.Claim{Node: strings.Repeat("01", 16), Incarnation: "5"}
	testRef   = chunk.BlockRef{Object: chunk.ObjectID{7}, Index: 3, Len: 10}
)

// answerText is a good answer, with its headers changed.
func answerText(status int, change map[string]string) string {
	head := http.Header{}
	head.Set("P2pfs-Proto", "1")
	head.Set("P2pfs-Node", testClaim.Node)
	head.Set("P2pfs-Incarnation", testClaim.Incarnation)
	head.Set("P2pfs-Block", blockName(testRef))
	head.Set("P2pfs-Sum", "0000abcd")
	head.Set("Content-Length", "10")
	for k, v := range change {
		if head.Set(k, v); v == "" {
			head.Del(k)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d Text\r\n", status)
	_ = head.Write(&b)
	b.WriteString("\r\n0123456789")
	return b.String()
}

func parseText(text string) (head, error) {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		return head{}, err
	}
	defer resp.Body.Close()
	return parseHead(resp, testClaim, testRef)
}

func TestParseHead(t *testing.T) {
	t.Parallel()
	h, err := parseText(answerText(200, nil))
	require.NoError(t, err)
	require.Equal(t, head{sum: 0xabcd}, h)
	h, err = parseText(answerText(200, map[string]string{"P2pfs-Sum": "", "P2pfs-Zero": "10", "Content-Length": "0"}))
	require.NoError(t, err)
	require.Equal(t, head{zero: true}, h)

	cases := []struct {
		name   string
		status int
		change map[string]string
		want   error
	}{
		{"no protocol", 200, map[string]string{"P2pfs-Proto": ""}, chunk.ErrCorrupt},
		{"a web server's 404", 404, map[string]string{"P2pfs-Proto": ""}, chunk.ErrCorrupt},
		{"protocol 2", 200, map[string]string{"P2pfs-Proto": "2"}, chunk.ErrCorrupt},
		{"no node", 200, map[string]string{"P2pfs-Node": ""}, chunk.ErrWrongNode},
		{"other incarnation", 200, map[string]string{"P2pfs-Incarnation": "6"}, chunk.ErrWrongNode},
		{"other block", 200, map[string]string{"P2pfs-Block": "x"}, chunk.ErrCorrupt},
		{"no length", 200, map[string]string{"Content-Length": ""}, chunk.ErrCorrupt},
		{"short", 200, map[string]string{"Content-Length": "9"}, chunk.ErrCorrupt},
		{"long", 200, map[string]string{"Content-Length": "11"}, chunk.ErrCorrupt},
		{"huge", 200, map[string]string{"Content-Length": "9223372036854775807"}, chunk.ErrCorrupt},
		{"chunked", 200, map[string]string{"Content-Length": "", "Transfer-Encoding": "chunked"}, chunk.ErrCorrupt},
		{"no sum", 200, map[string]string{"P2pfs-Sum": ""}, chunk.ErrCorrupt},
		{"short sum", 200, map[string]string{"P2pfs-Sum": "abcd"}, chunk.ErrCorrupt},
		{"sum in capitals", 200, map[string]string{"P2pfs-Sum": "0000ABCD"}, chunk.ErrCorrupt},
		{"long sum", 200, map[string]string{"P2pfs-Sum": "00000abcd"}, chunk.ErrCorrupt},
		{"zeros of another length", 200, map[string]string{"P2pfs-Zero": "9", "Content-Length": "0"}, chunk.ErrCorrupt},
		{"zeros with a body", 200, map[string]string{"P2pfs-Zero": "10"}, chunk.ErrCorrupt},
		{"not held", 404, nil, chunk.ErrNotHeld},
		{"gone", 410, nil, chunk.ErrSourceChanged},
		{"damaged", 409, nil, chunk.ErrDamaged},
		{"misdirected", 421, nil, chunk.ErrWrongNode},
		{"unauthorized", 401, nil, chunk.ErrRefused},
		{"forbidden", 403, nil, chunk.ErrRefused},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseText(answerText(c.status, c.change))
			require.ErrorIs(t, err, c.want)
		})
	}
	for _, status := range []int{204, 206, 301, 500, 503} {
		_, err := parseText(answerText(status, nil))
		require.ErrorContains(t, err, fmt.Sprint(status))
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	t.Parallel()
	body := &countingReader{}
	resp := &http.Response{StatusCode: 500, Header: http.Header{"P2pfs-Proto": {"1"}}, Body: io.NopCloser(body)}
	_, err := parseHead(resp, testClaim, testRef)
	require.Error(t, err)
	require.Less(t, len(err.Error()), 2*maxText)
	require.LessOrEqual(t, body.n, maxText)
}

// countingReader never ends.
type countingReader struct{ n int }

func (r *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	r.n += len(p)
	return len(p), nil
}

func FuzzParseHead(f *testing.F) {
	f.Add(answerText(200, nil))
	f.Add(answerText(200, map[string]string{"P2pfs-Zero": "10", "Content-Length": "0"}))
	f.Add(answerText(404, nil))
	f.Add(answerText(200, map[string]string{"Content-Length": "", "Transfer-Encoding": "chunked"}))
	f.Add("HTTP/1.1 200 OK\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseText(text)
		if err != nil {
			require.Zero(t, h)
			return
		}
		// What is accepted is what an honest node would have written.
		out := http.Header{}
		h.write(out, testRef)
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
		require.NoError(t, err)
		for k, v := range out {
			if k == "Content-Length" {
				require.Equal(t, v[0], fmt.Sprint(resp.ContentLength))
				continue
			}
			require.Equal(t, v[0], resp.Header.Get(k))
		}
	})
}

func TestZeroSums(t *testing.T) {
	t.Parallel()
	var z zeroSums
	for _, n := range []int64{1, 4096, 4096, 16 << 10, 100_000, 4 << 20, 1} {
		require.Equal(t, chunk.Sum(make([]byte, n)), z.sum(n))
	}
}
