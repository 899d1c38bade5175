/** Values of the variables of dashboards, as a viewer may choose values. */
export type Values = Readonly<Record<string, string>>

/** Windows that Grafana fills in: for a scrape each second and the last minute. */
const windows: Values = { __rate_interval: '15s', __range: '1m', __interval: '5s' }

/** Returns a dashboard's expression as Grafana sends the expression. Throws at an unknown variable. */
export function substitute(expr: string, chosen: Values): string {
  const values = { ...windows, ...chosen }
  return expr.replace(/\$\{?(\w+)\}?/g, (variable, name: string) => {
    const value = values[name]
    if (value === undefined) throw new Error(`unknown variable ${variable} in ${expr}`)
    return value
  })
}
