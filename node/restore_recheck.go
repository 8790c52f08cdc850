package node

import "context"

// lostChanges reports whether a fail-over of the store lost changes that this
// node made in the last minutes: they are brought back as what a copy of the
// store lacks, in a new epoch, so that what others did meanwhile is later.
func (r *restorer) lostChanges(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	lost, err := r.catalog.Recheck(ctx)
	if err != nil {
		r.log.Debug("cannot tell whether a fail-over of the metadata store lost changes", "err", err)
	}
	return lost
}
