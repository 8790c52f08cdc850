// Package metatest holds what every metadata store must pass, a store that
// fails on demand, and a real etcd process to try things on. For tests only.
package metatest
