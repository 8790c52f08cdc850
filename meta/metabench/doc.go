// Package metabench measures the catalog over every store beside bare commands
// of the same store, and what many nodes cost that do nothing. Its tests are built
// with the tag bench, and run by make bench-meta.
package metabench
