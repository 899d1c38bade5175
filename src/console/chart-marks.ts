/**
 * A part of the scripts in pages, behind the common beginning. Defines `marks(u)`, which draws `data.marks` of a chart:
 * a dashed line for each, with its text.
 */
export const marks = String.raw`
  function marks(u) {
    const { ctx, bbox } = u
    const ratio = uPlot.pxRatio
    ctx.save()
    ctx.strokeStyle = ctx.fillStyle = color('--soft')
    ctx.lineWidth = ratio
    ctx.setLineDash([3 * ratio, 3 * ratio])
    ctx.font = 12 * ratio + 'px system-ui, sans-serif'
    for (const mark of data.marks) {
      const at = Math.round(u.valToPos(mark.at, 'x', true))
      ctx.beginPath()
      ctx.moveTo(at, bbox.top)
      ctx.lineTo(at, bbox.top + bbox.height)
      ctx.stroke()
      ctx.fillText(mark.text, at + 4 * ratio, bbox.top + 14 * ratio)
    }
    ctx.restore()
  }
`
