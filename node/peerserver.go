package node

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/p2pfs/p2pfs/chunk"
	"github.com/p2pfs/p2pfs/node/nodepb"
	"github.com/p2pfs/p2pfs/rdma"
)

// followInterval is how long changes of a map are gathered before they are
// sent: a few block times on a fast link, little beside one on a slow link.
const followInterval = 50 * time.Millisecond

// followerShare is how much longer that is for each follower, so that many of
// them cost a link no more than few; longestInterval bounds it.
const (
	followerShare   = time.Millisecond
	longestInterval = 2 * time.Second
)

// maxSums is the most checksums one call returns.
const maxSums = 16384

// holdings is what the peer service needs of the cache.
type holdings interface {
	// Held returns the local map of an object and whether this node keeps
	// it; false if nothing of it is here.
	Held(chunk.ObjectID) (held chunk.Held, keeper, ok bool)
	// Bind makes a block that is here have a sum: it is read if need be.
	Bind(ctx context.Context, id chunk.ObjectID, block int) error
	// Keep makes this node a keeper of an object of which all is here.
	// chunk.ErrNotHeld; errLeaving: it is giving its own copy up.
	Keep(ctx context.Context, id chunk.ObjectID, set chunk.SetID, size int64) error
}

// peerService answers other nodes beside the blocks themselves.
type peerService struct {
	nodepb.UnimplementedPeerServer
	name     string
	holdings holdings
	interest *interest // of those who follow
	crowd    crowd
	sends    *chunk.Sends                         // what this node sends
	meet     func(o chunk.ObjectID, p chunk.Peer) // is told of those who follow
}

// Hello agrees on a protocol version.
func (s *peerService) Hello(_ context.Context, r *nodepb.HelloRequest) (*nodepb.HelloReply, error) {
	if r.ProtoMin > protoMax || r.ProtoMax < protoMin {
		return nil, status.Errorf(codes.FailedPrecondition, "node speaks protocol %d to %d, asked for %d to %d", protoMin, protoMax, r.ProtoMin, r.ProtoMax)
	}
	return &nodepb.HelloReply{Proto: min(protoMax, r.ProtoMax), Name: s.name}, nil
}

// Follow sends the whole map of an object, then the blocks that come, until
// the caller leaves or the object is complete or gone.
func (s *peerService) Follow(r *nodepb.FollowRequest, stream grpc.ServerStreamingServer[nodepb.Availability]) error {
	id, err := chunk.ObjectIDFrom(r.Object)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	held, keeper, ok := s.holdings.Held(id)
	if !ok {
		return status.Errorf(codes.NotFound, "object %s is not here", id)
	}
	defer s.interest.add(id)()
	told, next := held.Have(), 0
	if int64(told.Len()) != r.Blocks {
		return status.Errorf(codes.InvalidArgument, "object %s has %d blocks, not %d", id, told.Len(), r.Blocks)
	}
	defer s.sends.Follow(id)()
	first := &nodepb.Availability{Have: told.Bytes(), Keeper: keeper}
	first.Sent, next = s.sent(id, told, next)
	if peer, ok := asker(stream.Context(), r.Self); ok {
		others, leave := s.crowd.join(id, r.Self)
		defer leave()
		first.Peers = others
		s.meet(id, peer)
	}
	if err := stream.Send(first); err != nil {
		return err
	}
	tick := time.NewTimer(followInterval)
	defer tick.Stop()
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-tick.C:
			tick.Reset(min(followInterval+time.Duration(s.crowd.size(id))*followerShare, longestInterval))
		}
		held, keeper, ok = s.holdings.Held(id)
		if !ok {
			return status.Errorf(codes.NotFound, "object %s is not here any more", id)
		}
		news := &nodepb.Availability{Keeper: keeper}
		if !told.Full() {
			now := held.Have()
			news.Added = newBlocks(told, now)
			told = now
		}
		news.Sent, next = s.sent(id, told, next)
		if len(news.Added) > 0 || len(news.Sent) > 0 {
			if err := stream.Send(news); err != nil {
				return err
			}
		}
	}
}

// sent returns what was sent of an object since a place in its log, if all of
// it is here: those who can ask for any block ask for one that nobody got yet.
func (s *peerService) sent(id chunk.ObjectID, have chunk.Bitmap, from int) (blocks []int32, next int) {
	if !have.Full() {
		return nil, from
	}
	sent, next := s.sends.Sent(id, from)
	for _, b := range sent {
		blocks = append(blocks, int32(b))
	}
	return blocks, next
}

func newBlocks(told, now chunk.Bitmap) (added []int32) {
	for i := range now.Len() {
		if now.Has(i) && !told.Has(i) {
			added = append(added, int32(i))
		}
	}
	return added
}

// Sums returns the checksums this node has bound, and binds those that are
// missing if it is asked to.
func (s *peerService) Sums(ctx context.Context, r *nodepb.SumsRequest) (*nodepb.SumsReply, error) {
	id, err := chunk.ObjectIDFrom(r.Object)
	if err != nil || r.Count < 0 || r.Count > maxSums || r.First < 0 {
		return nil, status.Error(codes.InvalidArgument, "malformed request for checksums")
	}
	held, _, ok := s.holdings.Held(id)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "object %s is not here", id)
	}
	known := chunk.NewBitmap(int(r.Count))
	sums := make([]uint32, r.Count)
	for i := range int(r.Count) {
		block := int(r.First) + i
		sum, ok := held.Sum(block)
		if !ok && r.Bind && held.Has(block) {
			if err := s.holdings.Bind(ctx, id, block); err != nil {
				return nil, bindStatus(err)
			}
			sum, ok = held.Sum(block)
		}
		if ok {
			known.Set(i)
			sums[i] = sum
		}
	}
	return &nodepb.SumsReply{Known: known.Bytes(), Sums: sums}, nil
}

// bindStatus says why a block could not be bound.
func bindStatus(err error) error {
	if errors.Is(err, chunk.ErrNotHeld) || errors.Is(err, chunk.ErrSourceChanged) {
		return status.Error(codes.NotFound, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// Keep makes this node a keeper.
func (s *peerService) Keep(ctx context.Context, r *nodepb.KeepRequest) (*nodepb.KeepReply, error) {
	id, err := chunk.ObjectIDFrom(r.Object)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	set, err := chunk.SetIDFrom(r.Set)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	switch err := s.holdings.Keep(ctx, id, set, r.Size); {
	case errors.Is(err, chunk.ErrNotHeld):
		return nil, status.Error(codes.NotFound, err.Error())
	case errors.Is(err, errLeaving):
		return nil, status.Error(codes.Aborted, err.Error())
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &nodepb.KeepReply{}, nil
}

// verifyCall checks the identity of a call between nodes before it is served.
func verifyCall(ctx context.Context, auth rdma.Authorizer) error {
	md, _ := metadata.FromIncomingContext(ctx)
	_, err := auth.Verify(rdma.Request{Claim: rdma.ParseClaim(func(key string) string {
		if v := md.Get(key); len(v) == 1 {
			return v[0]
		}
		return ""
	})})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, chunk.ErrWrongNode):
		return status.Error(codes.FailedPrecondition, err.Error())
	default:
		return status.Error(codes.Unauthenticated, err.Error())
	}
}

// newPeerServer returns the gRPC side of a node; every call is verified.
func newPeerServer(auth rdma.Authorizer, svc *peerService) *grpc.Server {
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(1<<20),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := verifyCall(ctx, auth); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := verifyCall(ss.Context(), auth); err != nil {
				return err
			}
			return next(srv, ss)
		}),
	)
	nodepb.RegisterPeerServer(s, svc)
	return s
}
