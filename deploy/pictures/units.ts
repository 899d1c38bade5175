/** Names of powers of a unit, from the highest on. */
type Scale = readonly (readonly [from: number, name: string])[]

const SECONDS: Scale = [
  [86_400, 'd'],
  [3_600, 'h'],
  [60, 'min'],
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs'],
]

const BYTES: Scale = [
  [1024 ** 3, 'GiB'],
  [1024 ** 2, 'MiB'],
  [1024, 'KiB'],
  [1, 'B'],
]

const SHORT: Scale = [
  [1e9, 'Bil'],
  [1e6, 'Mil'],
  [1e3, 'K'],
]

/** A number with its unit, as a panel of Grafana prints numbers. Throws at an unknown unit. */
export function withUnit(value: number, unit: string): string {
  switch (unit) {
    case 'percentunit':
      return `${rounded(value * 100)} %`
    case 's':
      return value === 0 ? '0 s' : scaled(value, SECONDS)
    case 'bytes':
      return scaled(value, BYTES)
    case 'reqps':
      return `${rounded(value)} req/s`
    case 'cps':
      return `${rounded(value)} c/s`
    case 'short':
      return Math.abs(value) < 1_000 ? rounded(value) : scaled(value, SHORT)
    default:
      throw new Error(`no spelling for the unit ${unit}: add the unit to deploy/pictures/units.ts`)
  }
}

function scaled(value: number, scale: Scale): string {
  const [from, name] = scale.find(([from]) => Math.abs(value) >= from) ?? scale.at(-1) ?? [1, '']
  return `${rounded(value / from)} ${name}`
}

/** Rounds to at most three digits, small numbers to two, without trailing zeros. */
function rounded(value: number): string {
  const size = Math.abs(value)
  if (size < 1e-9) return '0'
  if (size < 1) return String(Number(value.toPrecision(2)))
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)))
}

/** Returns an axis's end, from `low` to at least `high`, and the distance of its marks: round numbers of its unit. */
export function marksOf(low: number, high: number, unit: string): { end: number; step: number } {
  if (high <= low) return { end: low + 1, step: 0.5 }
  const of = unit === 'bytes' ? (BYTES.find(([from]) => high - low >= from)?.[0] ?? 1) : 1
  const rough = (high - low) / of / 4
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = ([1, 2, 2.5, 5, 10].find((times) => times * power >= rough * 0.999) ?? 10) * power * of
  return { end: low + Math.ceil((high - low) / step - 1e-6) * step, step }
}
