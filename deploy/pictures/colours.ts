import type { Panel } from './panels.ts'
import { ink } from './svg.ts'

/** Colours of lines, in order; distinguishable with colour blindness if there are few lines. */
const palette = [
  '#1f77b4',
  '#e8710a',
  '#2a9d4a',
  '#c5221f',
  '#8250c4',
  '#8c6239',
  '#d6409f',
  '#6b7480',
  '#b08900',
  '#12a4b4',
  '#5c7cfa',
  '#9c36b5',
]

export const paletteColour = (index: number) => palette[index % palette.length] ?? ink.text

/** Returns the colour of a panel's line: the chosen colour of its name, else that of its place. */
export function colourOfLine({ lineColours }: Pick<Panel, 'lineColours'>, name: string, index: number) {
  const chosen = lineColours[name]
  return chosen === undefined ? paletteColour(index) : hexOf(chosen)
}

/** Names of Grafana, dark enough for a light ground. */
const names: Readonly<Record<string, string>> = {
  text: ink.text,
  green: '#1a7f37',
  orange: '#c2570c',
  red: '#c5221f',
  blue: '#1f5fbf',
  yellow: '#8a6d00',
  purple: '#8250c4',
}

/** Throws at a colour that no panel has used before. */
export function hexOf(name: string): string {
  const hex = names[name]
  if (hex === undefined)
    throw new Error(
      `no light-ground value for the colour ${name}: add the colour to deploy/pictures/colours.ts`,
    )
  return hex
}
