package main

// filterCmd groups the verbs about filters.
type filterCmd struct {
	Stats filterStatsCmd `cmd:"" help:"Print and probe the filter of each table."`
	Build filterBuildCmd `cmd:"" help:"Give filters to the tables that lack them."`
	Plan  filterPlanCmd  `cmd:"" help:"Print how a budget for filter memory would be spent."`
	Size  filterSizeCmd  `cmd:"" help:"Print how large filters for so many keys are."`
	Live  filterLiveCmd  `cmd:"" help:"Build, merge, query and inspect filters in files of their own."`
}
