package etcd

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/p2pfs/p2pfs/meta"
)

// List implements meta.Slots: pages in the order of fields, all at the
// revision of the first. Next is that revision, the slot's version and the
// last field.
func (s *Store) List(ctx context.Context, slot meta.Slot, next string, limit int) (meta.Page, error) {
	if next == "" {
		return s.firstPage(ctx, slot, limit)
	}
	rev, version, after, err := parseNext(next)
	if err != nil {
		return meta.Page{}, fmt.Errorf("list %s: %w", slot, err)
	}
	first := s.fields(slot)
	var kvs []*mvccpb.KeyValue
	err = s.retry(ctx, func(ctx context.Context, cl *clientv3.Client) error {
		r, err := cl.Get(ctx, first+after+"\x00",
			clientv3.WithRange(clientv3.GetPrefixRangeEnd(first)), clientv3.WithLimit(int64(limit)+1), clientv3.WithRev(rev))
		if err == nil {
			kvs = r.Kvs
		}
		return err
	})
	if err != nil {
		return meta.Page{}, err
	}
	return s.page(slot, kvs, limit, rev, version), nil
}

func (s *Store) firstPage(ctx context.Context, slot meta.Slot, limit int) (p meta.Page, err error) {
	err = s.retry(ctx, func(ctx context.Context, cl *clientv3.Client) error {
		r, err := cl.Txn(ctx).Then(
			clientv3.OpGet(s.slotKey(slot)),
			clientv3.OpGet(s.fields(slot), clientv3.WithPrefix(), clientv3.WithLimit(int64(limit)+1)),
		).Commit()
		if err != nil {
			return err
		}
		version := uint64(0)
		if kvs := r.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			version = uint64(kvs[0].ModRevision)
		}
		p = s.page(slot, r.Responses[1].GetResponseRange().Kvs, limit, r.Header.Revision, version)
		return nil
	})
	return p, err
}

// page makes a page of at most limit pairs; one more says that there are others.
func (s *Store) page(slot meta.Slot, kvs []*mvccpb.KeyValue, limit int, rev int64, version uint64) meta.Page {
	p := meta.Page{Version: version}
	cut := len(s.fields(slot))
	more := len(kvs) > limit
	kvs = kvs[:min(len(kvs), limit)]
	p.Records = make([]meta.Record, len(kvs))
	for i, kv := range kvs {
		p.Records[i] = meta.Record{Slot: slot, Field: string(kv.Key[cut:]), Value: present(kv.Value), Version: uint64(kv.ModRevision)}
	}
	if more {
		p.Next = fmt.Sprintf("%d %d %s", rev, version, p.Records[limit-1].Field)
	}
	return p
}

func parseNext(next string) (rev int64, version uint64, after string, err error) {
	parts := strings.SplitN(next, " ", 3)
	if len(parts) != 3 {
		return 0, 0, "", fmt.Errorf("%q does not continue a listing", next)
	}
	if rev, err = strconv.ParseInt(parts[0], 10, 64); err == nil {
		version, err = strconv.ParseUint(parts[1], 10, 64)
	}
	return rev, version, parts[2], err
}
