// Package metabench measures the catalog over every store beside bare commands
// of the same store. Its test is built with the tag bench, and run by
// make bench-meta.
package metabench
