//go:build !long

package integration

// killStride: make test kills at every third step, make test-long at each.
const killStride = 3
