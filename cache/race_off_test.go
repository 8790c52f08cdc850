//go:build !race

package cache

// many is what a large cache holds.
const many = 100_000
