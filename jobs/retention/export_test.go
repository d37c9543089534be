package retention

// Remove removes the jobs that are due at a time, as Run does now and then.
var Remove = (*Keeper).remove
