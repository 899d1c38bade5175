/** The gateways that are chosen. */
export const ME = '{job="$job",instance=~"$instance"}'
