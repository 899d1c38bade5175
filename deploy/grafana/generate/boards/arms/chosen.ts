import { query, type Query } from '../../query.ts'

/** The chosen arms; with all arms chosen, also calls without an arm. */
export const ARM = '{arm=~"$arm"}'

/** The same, at the chosen servers. */
export const AT_SERVER = '{server=~"$server",arm=~"$arm"}'

/** A ratio that a rule records for each arm, over all servers; `suffix` tells its lines from others. */
export const recorded = (measure: string, suffix = ''): Query =>
  query(`arm:breakwater_${measure}:ratio_rate5m${ARM}`, `{{arm}}${suffix}`)
