import { query, type Query } from '../../query.ts'

/** The arms that are chosen; with all of them, also calls that are in none. */
export const ARM = '{arm=~"$arm"}'

/** The same, at the servers that are chosen. */
export const AT_SERVER = '{server=~"$server",arm=~"$arm"}'

/** A ratio that a rule records for each arm, over all servers; `suffix` tells its lines from others of a panel. */
export const recorded = (measure: string, suffix = ''): Query =>
  query(`arm:breakwater_${measure}:ratio_rate5m${ARM}`, `{{arm}}${suffix}`)
