package meta

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/p2pfs/p2pfs/chunk"
)

// self is the field that holds a slot's own record. No name is ".": it sorts
// among the names and is skipped when they are listed.
const self = "."

// StoreSlot holds the one record about the store itself, and beside it a field
// that names the epoch: epochField.
const StoreSlot Slot = "store"

// epochField is there in StoreSlot while the store is in an epoch: changes of
// names are made on the condition that it is.
func epochField(e Epoch) string { return "epoch/" + hex.EncodeToString(e[:]) }

func dirSlot(id InodeID) Slot           { return Slot(fmt.Sprintf("d/%016x", uint64(id))) }
func objectSlot(id chunk.ObjectID) Slot { return Slot("o/" + id.String()) }
func setSlot(id chunk.SetID) Slot       { return Slot("s/" + id.String()) }
func nodeSlot(id chunk.NodeID) Slot     { return Slot("n/" + id.String()) }

// groupField names the record of a group of blocks.
func groupField(group int) string { return "g" + strconv.Itoa(group) }

// txPrefix begins the fields of a directory's slot that hold decisions about
// moves. No name has a slash.
const txPrefix = "/tx/"

// isName reports whether a field of a directory's slot is an entry's.
func isName(field string) bool { return field != self && !strings.Contains(field, "/") }
