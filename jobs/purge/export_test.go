package purge

// Begin is the first step of a purge that is killed behind it.
var Begin = (*Purger).begin
