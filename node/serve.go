package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc"

	"github.com/p2pfs/p2pfs/rdma/tcp"
)

// server answers other nodes on one port: blocks over HTTP/1.1, where the
// kernel's sendfile can be used, and the peer service over HTTP/2.
type server struct {
	http *http.Server
	rpc  *grpc.Server
	lis  net.Listener
}

// newServer returns a server on a plain TCP listener: a wrapped one would cost
// sendfile.
func newServer(lis net.Listener, blocks http.Handler, rpc *grpc.Server, log *slog.Logger) *server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := tcp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			rpc.ServeHTTP(w, r)
			return
		}
		blocks.ServeHTTP(w, r)
	}), log)
	srv.Protocols = &protocols
	return &server{lis: lis, rpc: rpc, http: srv}
}

// Run serves until ctx ends, then closes every connection.
func (s *server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		s.rpc.Stop()
		s.http.Close()
	})
	defer stop()
	err := s.http.Serve(s.lis)
	if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve other nodes on %s: %w", s.lis.Addr(), err)
}

// listen opens a TCP listener and says which flag to change when it cannot.
func listen(flag, hp string) (net.Listener, error) {
	lis, err := net.Listen("tcp", hp)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return lis, nil
}
