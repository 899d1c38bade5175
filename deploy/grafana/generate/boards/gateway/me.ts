/** Matches the chosen gateways. */
export const ME = '{job="$job",instance=~"$instance"}'
