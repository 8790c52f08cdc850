// Package staging is the write side of a mount. It keeps the files that are
// being written on this machine (type Area, which is fs.Changes), shows their
// names before anybody else can see them (an fs.Names over meta.View), and
// makes of each closed file an object that every node sees.
//
// The bytes lie in the cache (cache.Staged); the names' rules are those of
// meta.Catalog. Beside the bytes lies a note that says whose they are and how
// far their publish came, so that a restart finds them again.
//
// A file's content is at any moment one of three: staged (a copy that is being
// written), sealed (an object of the cache that the store does not know yet),
// or published. A write moves it to staged, a publish through sealed to
// published; a publish that fails leaves it where it came to.
package staging
