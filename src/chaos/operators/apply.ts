import { operatorOf, type OperatorName } from './index.ts'
import type { Detectability, Draw, Material, OperatorConfig } from './operator.ts'
import { segmentsOf } from './pointer.ts'
import { placesIn, type Place } from './places.ts'
import { edited } from './site.ts'

/** A changed copy of a value, and where it was changed; or that there was nothing to change. */
export type Applied = { readonly value: unknown; readonly path: string } | 'not_applicable'

/** Operators on these see one whole value: it has no places inside. */
const whole: ReadonlySet<Material> = new Set(['blocks', 'json_text'])

/**
 * Applies one operator. Without a `path` in its settings the place is drawn, for the purpose `path`, from where it
 * fits and `schema`, the JSON Schema of the value, does not say that it makes no sense there.
 */
export function apply(config: OperatorConfig, value: unknown, draw: Draw, schema?: unknown): Applied {
  const path = pathFor(config, value, draw, schema)
  if (path === undefined) return 'not_applicable'
  const { fits, edit } = operatorOf(config.op)
  const done = edited(value, segmentsOf(path), (site) =>
    fits(site, config) ? edit(site, config) : undefined,
  )
  return done === undefined ? 'not_applicable' : { value: done.value, path }
}

/** Where an operator is to work: as its settings say, or drawn; undefined when it fits nowhere. */
export function pathFor(
  config: OperatorConfig,
  value: unknown,
  draw: Draw,
  schema?: unknown,
): string | undefined {
  if (config.path !== undefined) return config.path
  return pick(fitting(config, placesIn(value, schema)), draw('path'))?.path
}

/** What there is of each material; undefined where there is nothing of it. */
export type Materials = (on: Material) => unknown

/**
 * Settings of one of the named operators, with a path, drawn for the purposes `operator` and `path`; undefined when
 * none of them fits anywhere. Each operator that fits is as likely as any other. `detectable` leaves out the others.
 */
export function choose(
  names: readonly OperatorName[],
  materials: Materials,
  draw: Draw,
  { schema, detectable }: { schema?: unknown; detectable?: Detectability | undefined } = {},
): OperatorConfig | undefined {
  const places = new Map<Material, readonly Place[]>()
  const fits = names.flatMap((name) => {
    const { on, schema: settings, detectable: is } = operatorOf(name)
    if (detectable !== undefined && is !== detectable) return []
    if (!places.has(on)) places.set(on, placesOf(materials(on), schema))
    const config = settings.parse({ op: name })
    const found = fitting(config, places.get(on) ?? [])
    return found.length > 0 ? [{ config, found }] : []
  })
  const chosen = pick(fits, draw('operator'))
  const path = chosen && pick(chosen.found, draw('path'))?.path
  return chosen && path !== undefined ? { ...chosen.config, path } : undefined
}

const placesOf = (material: unknown, schema: unknown): readonly Place[] =>
  material === undefined ? [] : placesIn(material, schema)

function fitting(config: OperatorConfig, places: readonly Place[]): readonly Place[] {
  const { on, fits, suits } = operatorOf(config.op)
  return (whole.has(on) ? places.slice(0, 1) : places).filter(
    ({ site, told }) => fits(site, config) && (suits === undefined || suits(told, site)),
  )
}

function pick<Item>(items: readonly Item[], u: number): Item | undefined {
  return items[Math.floor(u * items.length)]
}
