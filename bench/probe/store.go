package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// list returns all keys below a prefix.
func list(ctx context.Context, client *clientv3.Client, prefix string) ([]string, error) {
	var all []string
	from := prefix
	for {
		page, err := client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithKeysOnly(), clientv3.WithLimit(10_000))
		if err != nil {
			return nil, err
		}
		for _, kv := range page.Kvs {
			all = append(all, string(kv.Key))
		}
		if !page.More {
			return all, nil
		}
		from = all[len(all)-1] + "\x00"
	}
}

func connect(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
}

func keys(args []string) error {
	n, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	client, err := connect(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	all, err := list(ctx, client, args[1])
	if err != nil {
		return err
	}
	return timed(n, func() error {
		_, err := client.Get(ctx, all[rand.IntN(len(all))])
		return err
	})
}

// count prints how many keys there are of each kind: "d 100001", "o 3", ...
func count(args []string) error {
	client, err := connect(args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	all, err := list(context.Background(), client, args[1])
	if err != nil {
		return err
	}
	kinds := map[string]int{}
	for _, key := range all {
		kind, _, _ := strings.Cut(strings.TrimPrefix(key, args[1]), "/")
		kinds[kind]++
	}
	var lines []string
	for kind, n := range kinds {
		lines = append(lines, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
	return nil
}
