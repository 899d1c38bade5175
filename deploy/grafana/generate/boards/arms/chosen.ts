import { query, type Query } from '../../query.ts'

/** Matches the chosen arms; with all arms chosen, also calls without an arm. */
export const ARM = '{arm=~"$arm"}'

/** Matches the chosen arms at the chosen servers. */
export const AT_SERVER = '{server=~"$server",arm=~"$arm"}'

/** Returns the query of a ratio that a rule records for each arm, over all servers. `suffix` marks its lines. */
export const recorded = (measure: string, suffix = ''): Query =>
  query(`arm:breakwater_${measure}:ratio_rate5m${ARM}`, `{{arm}}${suffix}`)
