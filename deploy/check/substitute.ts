/** Values of the variables of dashboards, as a viewer may choose them. */
export type Values = Readonly<Record<string, string>>

/** Windows that Grafana fills in: for a scrape each second and the last minute. */
const windows: Values = { __rate_interval: '15s', __range: '1m', __interval: '5s' }

/** A dashboard's expression as Grafana sends it. Throws at a variable that nobody knows. */
export function substitute(expr: string, chosen: Values): string {
  const values = { ...windows, ...chosen }
  return expr.replace(/\$\{?(\w+)\}?/g, (variable, name: string) => {
    const value = values[name]
    if (value === undefined) throw new Error(`unknown variable ${variable} in ${expr}`)
    return value
  })
}
