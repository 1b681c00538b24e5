"""The picture of a network in the HTML page: rows of layers, and where it ends."""

from report_samples import layer, sample_report

from nmpsim.views.html.layer_graph import MAX_LAYERS, MAX_SPAN, make_layer_graph


def test_a_long_network_continues_in_the_next_row():
    layers = tuple(layer(n) for n in range(30))
    chain = tuple((n, n + 1) for n in range(29))
    graph = make_layer_graph(sample_report(layers=layers, edges=(*chain, (0, 29))))
    assert [box.layer.index for row in graph.rows for box in row.boxes] == list(range(30))
    assert len(graph.rows) == 3
    assert all(0 < row.view[2] <= graph.width for row in graph.rows)
    assert [row.top for row in graph.rows] == sorted({row.top for row in graph.rows})
    (skip,) = set(graph.rows[0].edges) & set(graph.rows[1].edges) & set(graph.rows[2].edges)
    assert skip.startswith("M")
    for row in graph.rows:  # nothing is cut off
        left, low, width, height = row.view
        for box in row.boxes:
            assert left <= box.x
            assert box.x + graph.box[0] <= left + width
            assert low <= box.y
            assert box.y + graph.box[1] <= low + height


def test_pictures_of_networks_have_limits():
    graph = make_layer_graph(sample_report())  # without edges, in their order
    assert [box.layer.index for box in graph.rows[0].boxes] == [0, 1, 2]
    assert graph.rows[0].edges == ()
    assert make_layer_graph(sample_report(layers=())) is None
    many = tuple(layer(n) for n in range(MAX_LAYERS + 1))
    assert make_layer_graph(sample_report(layers=many)) is None
    assert make_layer_graph(sample_report(edges=((0, 1),) * (MAX_SPAN + 1))) is None
