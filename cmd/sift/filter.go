package main

// filterCmd groups the verbs about filters.
type filterCmd struct {
	Stats filterStatsCmd `cmd:"" help:"Print and probe the filter of each table."`
	Build filterBuildCmd `cmd:"" help:"Give filters to the tables that lack them."`
	Size  filterSizeCmd  `cmd:"" help:"Print how large filters for so many keys are."`
}
