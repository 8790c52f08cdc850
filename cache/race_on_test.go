//go:build race

package cache

// many is fewer under the race detector, which makes each ten times as dear.
const many = 10_000
