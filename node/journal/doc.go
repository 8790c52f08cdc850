// Package journal is the durable memory of what this node did to names, in one
// bbolt file beside its cache. It is there for the day the metadata store loses
// them: nodes then bring back what each of them wrote, and keep away what each
// of them removed.
//
// The rules, of which this package owns the first half and meta.Catalog (Offer,
// OfferDir, Restore) the second:
//
//   - A store has epochs. One that lost its records, or was restored from a copy,
//     goes on in a new epoch, and its own record lists the earlier ones in order.
//   - A name's origin is the epoch and the version of the store it was written,
//     or removed, at. Origins are ordered by epoch, then by version. A name that
//     is brought into a later epoch keeps its origin.
//   - Of each name the journal holds the last thing this node did: the record it
//     wrote, or a tombstone (kept for TombstonesFor). A directory that this node
//     removed takes all that was in it out of the journal: its own tombstone,
//     in its parent, speaks for them.
//   - Of each directory that holds such names it holds the way: parent, name,
//     attributes, so that the path can be made again though another node made
//     it. Ways that were not written here are looked up in the background.
//   - In a new epoch every node offers what it has. For each name the later
//     origin stands, whoever comes first; a tombstone wins a tie. What was
//     written in the new epoch is later than all that is offered.
//   - Names removed in a store that has earlier epochs leave a tombstone there,
//     so that a node that comes back with an old journal brings nothing back.
//     A journal that has not been in touch with the store for as long as
//     tombstones are kept is not offered, unless the user says so.
//   - In an epoch that the journal was offered into already, nothing is offered:
//     a name that is gone was removed.
//
// Changes are handed over by Changed, which appends them to a plain file by one
// write: a process that is killed loses nothing that Changed returned for. A
// goroutine takes them into the database in batches at least every second, so
// that a crash of the machine may lose the last second.
//
// The package knows nothing of stores, of bytes or of mounts.
package journal
