// Package meta owns names, objects' facts, providers and nodes: all that the
// nodes of a cluster agree on.
//
// It is built in three layers. Slots is all a store must be able to do; etcd,
// Redis and memory implement it and pass metatest's suite. Catalog
// writes the domain's rules over Slots once, for every store. View is what a
// mount reads through: it caches, watches the directories that are cached or
// open, and outlives the store.
//
// The package knows nothing of FUSE, of blocks on disk or of transports.
package meta
